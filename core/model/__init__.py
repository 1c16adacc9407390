"""The model room: from a batch of plain ints to tokens. Importing it loads no torch."""
