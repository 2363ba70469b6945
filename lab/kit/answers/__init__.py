"""What a driver's libraries answer, call by call, and how two drivers differ in it."""
