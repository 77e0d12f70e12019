package testsuite

import "strings"

const (
	ledgerLookup = "FROM fencekit.ledger WHERE key"
	ledgerInsert = "INSERT INTO fencekit.ledger"
)

// replayed: the first run is not one that finds its effect done.
func (pr *prover) replayed() *finding {
	var lookup *Step
	for _, s := range pr.plain.Steps() {
		switch {
		case s.guards:
		case s.Changed, strings.Contains(s.Text, ledgerInsert):
			return nil
		case strings.Contains(s.Text, ledgerLookup):
			lookup = &s
		}
	}
	if lookup == nil || !pr.ledgerLeft() { // it may just look
		return nil
	}
	return found(causeLedger, "an undisturbed run finds that its effect is done already, and changes nothing\n%s", *lookup)
}

// suspectLedger adds to a wrong state that Reset leaves a ledger which Once may have
// found something in.
func (pr *prover) suspectLedger(f *finding) {
	if !f.state || !pr.ledgerLeft() {
		return
	}
	if f.cause == "" {
		f.cause = causeLedger
		return
	}
	f.text += "\nfencekit.ledger has rows after Proof.Reset, which pgxfence.Once may have found"
}

func (pr *prover) ledgerLeft() (left bool) {
	if pr.kit.direct == nil || pr.reset() != nil {
		return false
	}
	ctx, cancel := pr.ctx()
	defer cancel()
	_ = pr.kit.direct.QueryRow(ctx, "SELECT EXISTS (SELECT FROM fencekit.ledger)").Scan(&left) // there may be none
	return left
}
