// Package carrel is the vocabulary of the host: tenants, services, scopes,
// messages, memory keys, callers and errors. A string from outside becomes
// one of these types in one Parse function, or it is an error; inside, nothing
// is validated again. The package does no I/O and starts no goroutines.
package carrel
