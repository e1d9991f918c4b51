package minilm

import (
	"container/list"
	"errors"
	"sync"
)

// ErrNoModel is returned where the binary was built without the encoder. Use a build without the tag nomodel, or a judge
// that needs no encoder (a model's endpoint).
var ErrNoModel = errors.New("this build has no sentence encoder (it was built with -tags nomodel)")

// Default returns the embedded model.
var Default = sync.OnceValues(func() (*Model, error) {
	if modelFile == "" {
		return nil, ErrNoModel
	}
	return load(modelFile)
})

// Cache remembers the vectors of the texts that were asked for last. It is safe for concurrent use.
type Cache struct {
	model *Model
	size  int

	mu    sync.Mutex
	order list.List // of entry, latest first
	byKey map[string]*list.Element
}

type entry struct {
	text   string
	vector []float32
}

// NewCache keeps up to size vectors of model.
func NewCache(model *Model, size int) *Cache {
	return &Cache{model: model, size: max(1, size), byKey: map[string]*list.Element{}}
}

// Encode returns the vector of a text. Callers must not change it.
func (c *Cache) Encode(text string) []float32 {
	c.mu.Lock()
	if e, ok := c.byKey[text]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(entry).vector
	}
	c.mu.Unlock()
	v := c.model.Encode(text) // outside the lock: two callers may do the same work, with the same result
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[text]; !ok {
		c.byKey[text] = c.order.PushFront(entry{text, v})
	}
	for c.order.Len() > c.size {
		e := c.order.Back()
		delete(c.byKey, e.Value.(entry).text)
		c.order.Remove(e)
	}
	return v
}
