"""What runs show and publish while they live in this process."""
