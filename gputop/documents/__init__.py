"""What gputop prints as JSON, one definition a document: the schemas in gputop/schemas are made from them."""
