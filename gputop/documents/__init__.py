"""What gputop prints as JSON, one definition a document, of which its JSON Schema is made."""
