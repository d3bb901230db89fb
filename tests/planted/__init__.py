"""Programs with planted bugs, and the clean ones they were made from; `benches/planted.py` prints what is found."""
