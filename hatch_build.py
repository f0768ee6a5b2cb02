"""The README as a package index shows it: what is relative in the repository leads to the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"\]\((?!https?:|#)([^)\s]+)\)"


class ReadmeHook(MetadataHookInterface):
    """Make the links and pictures of the README absolute."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme``."""
        source = metadata["urls"]["Source"]
        pictures = source.replace("github.com", "raw.githubusercontent.com")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(rf"(!\[[^]]*){RELATIVE}", rf"\1]({pictures}/main/\2)", text)
        text = re.sub(RELATIVE, rf"]({source}/blob/main/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
