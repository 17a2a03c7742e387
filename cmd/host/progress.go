package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// upload sends a module and shows how far its admission is. A dry run waits for
// the answer instead: no other has its report.
func upload(ctx context.Context, e env, cl *client.Client, wasm []byte, o client.UploadOptions) (client.Uploaded, error) {
	if o.DryRun {
		return cl.Upload(ctx, wasm, o)
	}
	a, err := cl.UploadAsync(ctx, wasm, o)
	if err != nil {
		return client.Uploaded{}, err
	}
	remind := func() {
		fmt.Fprintf(e.stderr, "a host that runs goes on with it; this says how far it is: carrel push --status %s\n", carrel.DigestOf(wasm))
	}
	p := progress{e: e, begun: time.Now()}
	a, err = cl.WaitAdmission(ctx, a.Digest, p.show)
	p.clear()
	switch {
	case err == nil:
	case errors.Is(err, client.Code(abi.NotFound)):
		return client.Uploaded{}, fmt.Errorf("the host does not know of the upload any more, it was restarted or the version deleted; push it again: %w", errNotFound)
	case a.State == client.AdmissionRefused:
		return client.Uploaded{}, err
	default:
		remind()
		return client.Uploaded{}, err
	}
	v, err := cl.Version(ctx, a.Plugin, a.Digest)
	if err != nil {
		remind()
	}
	return client.Uploaded{Plugin: a.Plugin, Version: v}, err
}

// progress shows how far an admission is: on a terminal in one line that
// changes, elsewhere in a line for each stage.
type progress struct {
	e     env
	begun time.Time
	shown string // the stage of the last line
	drawn bool   // there is a line that changes
}

// soon is how long nothing is shown: most uploads end before.
const soon = 200 * time.Millisecond

func (p *progress) show(a client.Admission) {
	took := time.Since(p.begun)
	if a.Ended() || took < soon {
		return
	}
	switch stage := visible(a.State); {
	case p.e.live:
		fmt.Fprintf(p.e.stderr, "\r%s, %v\x1b[K", stage, took.Truncate(time.Second))
		p.drawn = true
	case stage != p.shown:
		fmt.Fprintln(p.e.stderr, stage)
	}
	p.shown = visible(a.State)
}

// clear takes the line that changes away.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.e.stderr, "\r\x1b[K")
	}
}

// printAdmission says how far an upload is. more is added to what became of
// it.
func printAdmission(w io.Writer, a client.Admission, more string) {
	switch a.State {
	case client.AdmissionActive:
		fmt.Fprintf(w, "%s: version %d is active (digest %s)%s\n", a.Plugin, a.N, a.Digest, more)
	case client.AdmissionStored:
		fmt.Fprintf(w, "%s: version %d is stored, not active (digest %s)%s\n", a.Plugin, a.N, a.Digest, more)
	case client.AdmissionChecked:
		fmt.Fprintf(w, "%s: the host would take it (digest %s)%s\n", a.Plugin, a.Digest, more)
	default:
		fmt.Fprintf(w, "%s (digest %s)%s\n", visible(a.State), a.Digest, more)
	}
}
