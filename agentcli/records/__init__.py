"""What passes between the stages, and how it lies on disk.

Everything else imports this room; it imports nothing of ours but the errors.
"""
