"""What operations and reads mean, for any database: generators that ask named questions."""
