// Package testsuite tests guarded activities in milliseconds, without servers, in
// Temporal's own test environments; and it proves that an activity survives being a
// zombie: see [ProveFenced].
package testsuite
