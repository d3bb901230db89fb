"""Plants bugs at random places of random right programs; `planted.judge` says which of them are bugs indeed."""
