"""What to register: tables of pairs, Learn2Reg folders, phantoms."""
