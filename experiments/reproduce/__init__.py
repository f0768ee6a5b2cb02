"""Every table and figure of the paper, from the networks of ``data/``: one file for each."""
