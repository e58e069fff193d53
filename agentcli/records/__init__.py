"""What passes between the stages, and how it lies on disk. Everything else imports this; it imports nothing of ours
but the errors."""
