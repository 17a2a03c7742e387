package tenant

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel/store"
)

// keptKeys bounds how many keys a directory keeps: below 2 MiB of them.
const keptKeys = 4096

// keys are those that were used last, so that a request needs no read to be
// told from whom it is. By the contract of store.Tenants what was read once
// stays true; what is not there is never kept. Secrets are
// not kept either, only their hashes.
type keys struct {
	mu     sync.Mutex // guards byHash
	byHash *simplelru.LRU[[32]byte, store.APIKey]
}

func newKeys() *keys {
	byHash, _ := simplelru.NewLRU[[32]byte, store.APIKey](keptKeys, nil) // it refuses a size of 0 alone
	return &keys{byHash: byHash}
}

func (s *keys) get(hash [32]byte) (store.APIKey, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byHash.Get(hash)
}

func (s *keys) put(k store.APIKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byHash.Add(k.Hash, k)
}
