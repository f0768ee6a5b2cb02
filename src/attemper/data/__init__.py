"""What people hold becomes `Scores`, once."""
