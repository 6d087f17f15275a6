"""What people do with runs beyond starting and stopping them."""
