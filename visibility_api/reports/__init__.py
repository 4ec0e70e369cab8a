"""What a training process says of itself, in each of its forms, read as hostile bytes."""
