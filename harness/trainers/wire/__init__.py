"""What nodes say to each other: messages, frames, and what crosses a socket."""
