"""Files of other users: read by a child without rights, within bounds."""
