package httpapi

import "github.com/carrelhost/carrel/abi"

// Status returns the HTTP status of a code; 0 if it has none.
func Status(c abi.Code) int { return status[c] }
