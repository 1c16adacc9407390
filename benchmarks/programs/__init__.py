"""What is known of programs before they run, and what that saves."""
