"""What every folder may use, and what knows of none of them."""
