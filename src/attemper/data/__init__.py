"""Arrays as they come in, and `Scores`: validated logits or probabilities with their labels."""
