package pgxfence_test

const childVariable = "FENCEKIT_PGX_CHILD"

func playChild() {}
