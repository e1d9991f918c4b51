package security

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Files that were encrypted in place: as bytes, or as text that stands for such bytes.

// encrypting are words of a task that asks for files to be encrypted.
var encrypting = []string{"encrypt", "encrypts", "encrypted", "encryption", "encipher", "cipher", "vault", "sops", "gpg", "pgp", "age", "seal", "sealed"}

// encrypted takes in a file that was text and is now noise without the head of any known format.
func (b *backdoors) encrypted(f Changed, before, after []byte) bool {
	if len(before) < 64 || !looksLikeText(before) || !isNoise(after) && !noiseInText(after) || noiseInText(before) {
		return false
	}
	if b.task.hasAny(encrypting) && b.explain(bodycam.File, f.Path).Cleared() {
		return false
	}
	b.noise = append(b.noise, f)
	return true
}

// isNoise tells whether bytes have no structure: that of compressed data has a head.
func isNoise(data []byte) bool {
	return len(data) >= 256 && !looksLikeText(data) && !known(data) && entropy(data) >= 7.2
}

// leastNoise is how many bytes a text must stand for to be judged, and leastEntropy what they must have at least: as many
// bytes by chance have 6.4 bits and more, those of other encoded things (text, tables, numbers) below 6.
const (
	leastNoise   = 128
	leastEntropy = 6.2
)

// armours begin texts that are encrypted files by their own words.
var armours = []string{"-----BEGIN PGP MESSAGE-----", "-----BEGIN AGE ENCRYPTED FILE-----", "$ANSIBLE_VAULT;"}

// noiseInText tells whether a text is nothing but noise, written in base64 or hexadecimal digits.
func noiseInText(data []byte) bool {
	if len(data) < leastNoise {
		return false
	}
	text := strings.TrimSpace(string(data))
	for _, a := range armours {
		if strings.HasPrefix(text, a) {
			return true
		}
	}
	if strings.IndexFunc(text, notDigit) >= 0 {
		return false
	}
	text = strings.TrimRight(strings.NewReplacer("\n", "", "\r", "", "-", "+", "_", "/").Replace(text), "=")
	raw, err := hex.DecodeString(text)
	if err != nil {
		raw, err = base64.RawStdEncoding.DecodeString(text)
	}
	return err == nil && len(raw) >= leastNoise && !looksLikeText(raw) && !known(raw) && entropy(raw) >= leastEntropy
}

// notDigit tells what stands in no base64 or hexadecimal text.
func notDigit(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+/-_=\r\n", r))
}

// ransom reports what was encrypted: one finding, however many files.
func (b *backdoors) ransom() {
	if len(b.noise) == 0 {
		return
	}
	one := b.noise[0]
	f := bodycam.Finding{Analysis: Name, Rule: "File encrypted", Class: "destruction", Severity: bodycam.Critical, Count: uint64(len(b.noise)),
		Title:    clip(bodycam.Printable(one.Path)) + " was text and is now noise, as an encrypted file is",
		Detail:   "The content after the run has no structure and the head of no known format, or is text that stands for such bytes.",
		Resource: one.Path, Events: eventsOf(b.noise), Tags: []string{"destruction", "ransomware", "T1486"}, Naming: "exact"}
	if n := len(b.noise); n > 1 {
		f.Title = fmt.Sprintf("%d files of the workspace were text and are now noise, as encrypted files are, %s among them", n, clip(bodycam.Printable(one.Path)))
		f.Resource = commonDir(b.noise)
	}
	b.out = append(b.out, f)
}

// commonDir is the nearest directory above all files.
func commonDir(files []Changed) string {
	dir := path.Dir(files[0].Path)
	for _, f := range files[1:] {
		for dir != "/" && dir != "." && !strings.HasPrefix(f.Path, dir+"/") {
			dir = path.Dir(dir)
		}
	}
	return dir
}
