package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// ErrBrokenOff is in the errors of requests that were sent and whose
// connection then ended before the answer was complete: the host may have done
// what was asked for, or not. Of a call with an idempotency key, sending it
// again finds out.
var ErrBrokenOff = errors.New("the connection broke off, and what was asked for may have been done")

// brokenOff tells of an error that followed after a request was sent whether
// the connection ended. What is no answer of a host's at all is none of it.
func brokenOff(err error) error {
	_, ofNetwork := errors.AsType[*net.OpError](err)
	ended := ofNetwork || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.HasSuffix(err.Error(), "http: server closed idle connection") // an error that net/http does not export
	if !ended {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBrokenOff, err)
}
