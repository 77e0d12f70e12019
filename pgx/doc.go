package pgxfence
