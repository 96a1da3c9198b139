"""What single methods, or a family of them, are made of: mathematics, losses, modules."""
