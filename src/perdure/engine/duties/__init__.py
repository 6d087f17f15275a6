"""Duties: what one worker of a namespace does now and then, and who has them."""
