"""Files of measured times, by the program that wrote them."""
