"""The nouns of a Perdure: attributes with methods of their own, such as `app.schedules`."""
