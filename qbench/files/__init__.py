"""Files read and written with care: whole or not at all, without trusting what they say of themselves."""
