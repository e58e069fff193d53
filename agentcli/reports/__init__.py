"""Tables and text for the terminal, made from results that others computed."""
