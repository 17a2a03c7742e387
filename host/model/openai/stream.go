package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/carrelhost/carrel/host/model"
)

// wirePerText bounds what a stream may cost on the wire for the text that it
// may hold: an event that carries one letter has about 250 bytes, most events
// carry more.
const wirePerText = 128

// readStream reads a streamed answer and delivers its texts.
func (p *Provider) readStream(body io.Reader, deliver func(string) error) (model.Response, error) {
	wire := &io.LimitedReader{R: body, N: p.maxAnswer * wirePerText}
	in := newEvents(wire, p.maxAnswer)
	var text strings.Builder
	resp := model.Response{FinishReason: model.FinishUnknown}
	chosen, ended := false, false // a choice was seen; a reason to finish was
	for {
		ev, err := in.next()
		switch {
		case errors.Is(err, bufio.ErrTooLong), errors.Is(err, io.EOF) && wire.N <= 0:
			return resp, p.tooLarge()
		case errors.Is(err, io.EOF):
			if !ended {
				return resp, misunderstood(errCut)
			}
			resp.Text = text.String()
			return resp, nil
		case err != nil:
			return resp, err
		case string(ev.data) == "[DONE]":
			if !chosen {
				return resp, misunderstood(errNoChoice)
			}
			resp.Text = text.String()
			return resp, nil
		case ev.name == "error":
			return resp, reported(ev.data)
		}
		a, err := decode(ev.data)
		if err != nil {
			return resp, err
		}
		if a.Model != "" {
			resp.Model = a.Model
		}
		if a.Usage != nil {
			resp.Usage = a.Usage.tokens()
		}
		for _, c := range a.Choices {
			if c.Index != 0 {
				continue // one answer was asked for
			}
			chosen = true
			if c.FinishReason != "" {
				resp.FinishReason, ended = finish(c.FinishReason), true
			}
			piece := string(c.Delta.Content)
			if piece == "" {
				continue
			}
			if int64(text.Len()+len(piece)) > p.maxAnswer {
				return resp, p.tooLarge()
			}
			text.WriteString(piece)
			if err := deliver(piece); err != nil {
				return resp, err
			}
		}
	}
}

// event is one server-sent event. Its data is valid until the next one is read.
type event struct {
	name string
	data []byte
}

// events reads server-sent events, none larger than max bytes.
type events struct {
	lines *bufio.Scanner
	max   int64
	data  []byte
}

func newEvents(r io.Reader, maxBytes int64) *events {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, min(maxBytes, 4096)), int(maxBytes))
	return &events{lines: lines, max: maxBytes}
}

// next returns the next event that has data. Its error is io.EOF at the end,
// bufio.ErrTooLong for an event beyond the limit, else the reader's.
func (e *events) next() (event, error) {
	ev := event{}
	e.data = e.data[:0]
	has := false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if has {
				ev.data = e.data
				return ev, nil
			}
			ev = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":")) // a comment has no field name
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if has {
				e.data = append(e.data, '\n')
			}
			if int64(len(e.data)+len(value)) > e.max {
				return event{}, bufio.ErrTooLong
			}
			e.data = append(e.data, value...)
			has = true
		}
	}
	if err := e.lines.Err(); err != nil {
		return event{}, err
	}
	if has { // the last event may lack its empty line
		ev.data = e.data
		return ev, nil
	}
	return event{}, io.EOF
}
