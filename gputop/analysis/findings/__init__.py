"""What the causes claim, held against each other: findings with their chains, and the class."""
