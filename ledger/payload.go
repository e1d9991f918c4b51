package ledger

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// The bounds of payloads.
const (
	MaxInline = 4 << 10  // bytes of a payload under its event key
	MaxBody   = 64 << 10 // bytes of a payload that is kept with the records' own; beyond, chunks
	ChunkSize = 1 << 20  // bytes of a chunk before encryption
	MaxChunks = 1 << 14  // chunks of a payload: 16 GiB
)

// In the payload file, an inline payload is its ciphertext. A large payload or a batch is
//
//	uvarint length ‖ manifest, encrypted under the event key ‖ body, encrypted under the manifest's key
//
// so that the costly part is done before the writer's lock is taken. FormClear leaves out every encryption.

// manifest is what opens a large payload or a batch.
type manifest struct {
	key    []byte // of the body; nil where it is clear
	salt   []byte // large: the commitment's salt. batch: the key of the events' salts. nil where there are none
	size   uint64 // large: bytes of the payload
	chunks []Hash // large: digests of the chunks as stored; nil where the body follows the manifest
}

func (m *manifest) append(b []byte, form Form) []byte {
	large := form.Kind() == FormLarge
	n := 0
	for _, there := range []bool{m.key != nil, m.salt != nil, large, m.chunks != nil} {
		if there {
			n++
		}
	}
	b = dcbor.AppendMap(b, n)
	if m.key != nil {
		b = dcbor.AppendBytes(append(b, 1), m.key)
	}
	if m.salt != nil {
		b = dcbor.AppendBytes(append(b, 2), m.salt)
	}
	if large {
		b = dcbor.AppendUint(append(b, 3), m.size)
	}
	if m.chunks != nil {
		b = dcbor.AppendArray(append(b, 4), len(m.chunks))
		for i := range m.chunks {
			b = dcbor.AppendBytes(b, m.chunks[i][:])
		}
	}
	return b
}

func parseManifest(b []byte, p Profile, form Form) (*manifest, error) {
	d := dcbor.NewDecoder(b)
	m := &manifest{}
	n := d.Map()
	if !form.Clear() {
		d.Key(1)
		m.key = make([]byte, keySize)
		d.Fixed(m.key)
		n--
		if p != ProfileAFR {
			m.salt = make([]byte, keySize)
			d.Key(2)
			d.Fixed(m.salt)
			n--
		}
	}
	if form.Kind() == FormLarge {
		d.Key(3)
		m.size = d.Uint()
		n--
		if n == 1 {
			d.Key(4)
			k := d.Array()
			m.chunks = make([]Hash, k)
			for i := range k {
				d.Fixed(m.chunks[i][:])
			}
		}
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	if string(m.append(nil, form)) != string(b) || len(m.chunks) > MaxChunks || m.size > MaxChunks*ChunkSize {
		return nil, fmt.Errorf("reading a manifest: %w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return m, nil
}

// wipe overwrites the keys: the writer needs them no more once the payload is encrypted.
func (m *manifest) wipe() {
	clear(m.key)
	clear(m.salt)
}

// prepared is a payload made ready before the writer's lock is taken: all but what depends on the record's place.
type prepared struct {
	form       Form
	commitment Hash
	count      uint64
	manifest   []byte // not yet encrypted
	body       []byte // as stored
	chunk      *chunk // not nil: the payload lies in it already as it will be written; then manifest and body are nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return b
}

// prepareLarge makes a payload ready that is too big for its event key. Where it takes chunks, they are handed to
// put one by one.
func prepareLarge(p Profile, clear bool, r io.Reader, put func(digest *Hash, data []byte) error) (*prepared, error) {
	form := FormLarge
	m := &manifest{}
	var gcm cipher.AEAD
	if clear {
		form |= FormClear
	} else {
		m.key = randomBytes(keySize)
		if p != ProfileAFR {
			m.salt = randomBytes(keySize)
		}
		var err error
		if gcm, err = newGCM(m.key); err != nil {
			return nil, err
		}
	}
	defer m.wipe()
	c := newCommitter(p, form, m.salt)
	out := &prepared{form: form}
	buf := make([]byte, MaxBody+1, MaxBody+1+tagSize)
	n, err := io.ReadFull(r, buf)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("reading a payload: %w", err)
	}
	if n <= MaxBody {
		m.size = uint64(n)
		c.Write(buf[:n])
		out.body = sealChunk(gcm, 0, buf[:n])
	} else {
		big := make([]byte, ChunkSize, ChunkSize+tagSize)
		copy(big, buf)
		for filled := n; ; filled = 0 {
			k, err := io.ReadFull(r, big[filled:ChunkSize])
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return nil, fmt.Errorf("reading a payload after %d bytes: %w", m.size, err)
			}
			k += filled
			if k == 0 {
				break
			}
			if len(m.chunks) == MaxChunks {
				return nil, fmt.Errorf("a payload of more than %d bytes: split it", MaxChunks*ChunkSize)
			}
			m.size += uint64(k)
			c.Write(big[:k])
			data := sealChunk(gcm, uint32(len(m.chunks)), big[:k])
			digest := sha256.Sum256(data)
			if err := put(&digest, data); err != nil {
				return nil, fmt.Errorf("storing chunk %d of a payload: %w", len(m.chunks), err)
			}
			m.chunks = append(m.chunks, digest)
			if k < ChunkSize {
				break
			}
		}
	}
	out.commitment = c.sum()
	out.manifest = m.append(nil, form)
	return out, nil
}

// sealChunk encrypts data in place.
func sealChunk(gcm cipher.AEAD, i uint32, data []byte) []byte {
	if gcm == nil {
		return data
	}
	return gcm.Seal(data[:0], chunkNonce(i), data, nil)
}

func openChunk(gcm cipher.AEAD, i uint32, data []byte) ([]byte, error) {
	if gcm == nil {
		return data, nil
	}
	plain, err := gcm.Open(nil, chunkNonce(i), data, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: its encryption is false", ErrPayload)
	}
	return plain, nil
}
