"""What a command is given: options, values, modules, config file, database."""
