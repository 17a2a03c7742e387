package invoke_test

import (
	"context"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

// The ways in which a model fails.
const (
	modelRefuses way = "fails before its first piece"
	modelBreaks  way = "fails in the middle of its answer"
	modelLate    way = "answers when the client is gone"
)

// talker is a model that answers at once, but for one call.
type talker struct {
	mu    sync.Mutex // guards what follows
	n, at int
	how   way
	leave context.CancelFunc
	hit   bool
}

func (m *talker) arm(n int, how way) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.at, m.how, m.hit = 0, n, how, false
}

func (m *talker) client(leave context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave = leave
}

func (m *talker) counted() (n int, hit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n, m.hit
}

func (m *talker) Generate(_ context.Context, r model.Request, onDelta func(string) error) (model.Response, error) {
	m.mu.Lock()
	m.n++
	how, leave := way(""), m.leave
	if m.n == m.at {
		how, m.hit = m.how, true
	}
	m.mu.Unlock()
	fail := carrel.Fail("talker", abi.ModelFailed, "not well")
	if how == modelRefuses {
		return model.Response{}, fail
	}
	if onDelta != nil {
		if err := onDelta("A:"); err != nil {
			return model.Response{}, err
		}
	}
	asked := r.Messages[len(r.Messages)-1].Content
	if how == modelBreaks {
		return model.Response{}, fail
	}
	if how == modelLate {
		leave()
	}
	if onDelta != nil {
		if err := onDelta(asked); err != nil {
			return model.Response{}, err
		}
	}
	return model.Response{Text: "A:" + asked, FinishReason: model.FinishStop, Model: "talker", Usage: carrel.Usage{InputTokens: 3, OutputTokens: 4}}, nil
}
