package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/hostlog"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/spf13/cobra"
)

func keysCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list, rotate and destroy keys",
		Long: `Keys of two kinds are kept in files: those that sign ledgers, and those that read what is recorded. Every record is
encrypted; what a run holds can be read with the reading key only, and destroying the keys of a part erases that part.

  signing.key     secret   signs checkpoints (Ed25519 and ML-DSA-44)
  signing.pub     public   what others verify with
  identity.key    secret   reads what is recorded (age, resists quantum computers)
  recipients.txt  public   to whom what is recorded is encrypted; add a line to let another key read it too

The first "bodycam run" makes them where there are none. The folder is $BODYCAM_KEYS, or bodycam/keys in the user's
configuration.` + exits("0  done", "2  usage", "3  reading or writing failed"),
		Example: `  bodycam keys init --passphrase-file phrase.txt
  bodycam keys export -o recorder.pub
  bodycam keys destroy RUN --event 17 --reason "personal data, asked for by its subject"`,
	}
	cmd.AddCommand(keysInit(s), keysList(s), keysShow(s), keysRotate(s), keysExport(s), keysDestroy(s))
	return cmd
}

func keysInit(s *streams) *cobra.Command {
	var f ringFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this machine's keys",
		Long: `Make a signing key and a reading key. Nothing is overwritten. With --passphrase-file (or $` + passphraseEnv + `) the secret
files are encrypted with that passphrase; whoever records or reads then needs it.` +
			exits("0  made", "2  there are keys already", "3  writing failed"),
		Example: "  bodycam keys init\n  bodycam keys init --keys ./ring --passphrase-file phrase.txt",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := f.directory()
			if err != nil {
				return err
			}
			phrase, err := f.newPhrase()
			if err != nil {
				return err
			}
			err = keyring.Create(dir, phrase)
			if errors.Is(err, fs.ErrExist) {
				return withHint(usage("%w", err), "`bodycam keys rotate` replaces them and keeps the old ones")
			}
			if err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "%s: keys made. Keep a copy of %s elsewhere: without it nothing recorded can be read.\n", dir, keyring.IdentityFile)
			return err
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// newPhrase is the passphrase for files that are made; "" for none.
func (f *ringFlags) newPhrase() (string, error) {
	if f.phrase == "" {
		return os.Getenv(passphraseEnv), nil
	}
	p, err := readPhrase(f.phrase)
	if err != nil {
		return "", usage("%w", err)
	}
	return p, nil
}

// keyFile is one line of `keys list`.
type keyFile struct {
	File      string    `json:"file"`
	Kind      string    `json:"kind"` // signing, identity, recipients, public
	Secret    bool      `json:"secret"`
	Encrypted bool      `json:"encrypted,omitempty"`
	Current   bool      `json:"current"`
	Made      time.Time `json:"made"`
	Keys      []string  `json:"keys,omitempty"` // of public files
	// What verify and the file of `keys export` call each of them.
	Verify   []string `json:"keys_in_verify,omitempty"`
	Exported []string `json:"keys_exported,omitempty"`
}

func keysList(s *streams) *cobra.Command {
	var f ringFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List this machine's key files",
		Long: "List the key files with their kind, whether they are encrypted, and the fingerprints of the public ones." +
			exits("0  listed", "2  there are no keys"),
		Example: "  bodycam keys list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := f.directory()
			if err != nil {
				return err
			}
			list, err := listKeys(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s, list)
			}
			fmt.Fprintln(s.out, dir)
			for _, k := range list {
				what := k.Kind
				if k.Secret {
					what += ", secret"
					if k.Encrypted {
						what += ", encrypted"
					}
				}
				if !k.Current {
					what += ", former"
				}
				fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf("  %-36s %-34s %s", k.File, what, strings.Join(k.Keys, " ")), " "))
				for i, name := range k.Keys {
					fmt.Fprintf(s.out, "    %s is the %s of bodycam verify, and %s where it is exported\n", name, k.Verify[i], k.Exported[i])
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd.Flags())
	return cmd
}

var keyKinds = map[string]string{
	keyring.SigningFile: "signing", keyring.PublicFile: "public", keyring.IdentityFile: "identity", keyring.RecipientsFile: "recipients",
}

func listKeys(dir string) ([]keyFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage("%s: %w: make them with `bodycam keys init`", dir, keyring.ErrNone)
	}
	if err != nil {
		return nil, environment(err)
	}
	out := []keyFile{}
	for _, e := range entries {
		for _, name := range []string{keyring.SigningFile, keyring.PublicFile, keyring.IdentityFile, keyring.RecipientsFile} {
			if e.Name() != name && !strings.HasPrefix(e.Name(), name+".") {
				continue
			}
			info, err := e.Info()
			if err != nil {
				return nil, environment(err)
			}
			k := keyFile{File: e.Name(), Kind: keyKinds[name], Current: e.Name() == name, Made: info.ModTime().UTC()}
			k.Secret = name == keyring.SigningFile || name == keyring.IdentityFile
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, environment(err)
			}
			k.Encrypted = k.Secret && bytes.HasPrefix(b, []byte("age-encryption.org/"))
			if name == keyring.PublicFile {
				keys, err := keyring.PublicKeys(filepath.Join(dir, e.Name()))
				if err != nil {
					return nil, environment(err)
				}
				for _, p := range keys {
					named := checkpoint.Key{Name: keyring.KeyName, Alg: p.Alg, Public: p.Public}
					k.Keys = append(k.Keys, fingerprint(p))
					k.Verify = append(k.Verify, fmt.Sprintf("%s key %x…", p.Alg, p.Public[:8]))
					k.Exported = append(k.Exported, fmt.Sprintf("%s+%x", named.Name, named.ID()))
				}
			}
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, usage("%s: %w: make them with `bodycam keys init`", dir, keyring.ErrNone)
	}
	return out, nil
}

// fingerprint names a public key for people: the algorithm and the beginning of its digest.
func fingerprint(k ledger.PublicKey) string {
	sum := sha256.Sum256(k.Public)
	return k.Alg.String() + ":" + hex.EncodeToString(sum[:8])
}

// shownRun is what `keys show RUN` says.
type shownRun struct {
	Log     string   `json:"log"`
	Keys    []string `json:"signing_keys"` // that the log began with
	Epochs  uint64   `json:"epochs"`
	Open    uint64   `json:"readable"` // payloads
	Closed  uint64   `json:"closed"`   // to this machine's keys
	Erased  uint64   `json:"erased"`
	Mine    bool     `json:"signed_here"` // one of the keys is this machine's
	Reasons []string `json:"erasures,omitempty"`
}

func keysShow(s *streams) *cobra.Command {
	var f ringFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [RUN]",
		Short: "Print public keys, or what this machine's keys can do with a run",
		Long: `Print the public signing keys and the recipients. With RUN, tell under which keys its ledger stands, how much of it
this machine's keys read, and what was erased of it.` +
			exits("0  shown", "2  there are no keys, or RUN has no ledger"),
		Example: "  bodycam keys show\n  bodycam keys show RUN --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := f.directory()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return f.showRun(s, args[0], dir, asJSON)
			}
			pub, err := os.ReadFile(filepath.Join(dir, keyring.PublicFile))
			var rec []byte
			if err == nil {
				rec, err = os.ReadFile(filepath.Join(dir, keyring.RecipientsFile))
			}
			if err != nil {
				return usage("%w: `bodycam keys init` makes keys", err)
			}
			if asJSON {
				return printJSON(s, map[string]any{"dir": dir, "signing": keyLines(pub), "recipients": keyLines(rec)})
			}
			_, err = fmt.Fprintf(s.out, "# signing keys\n%s# recipients\n%s", pub, rec)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd.Flags())
	return cmd
}

func keyLines(b []byte) []string {
	out := []string{}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

func (f *ringFlags) showRun(s *streams, arg, dir string, asJSON bool) error {
	r, err := f.open(arg)
	if err != nil {
		return err
	}
	lr, err := r.Ledger()
	if err != nil {
		return usage("%w", err)
	}
	defer lr.Close()
	gen := lr.Genesis()
	id := gen.ID()
	v := shownRun{Log: hex.EncodeToString(id[:]), Epochs: lr.Epochs()}
	mine, err := keyring.Trusted(dir)
	if err != nil && !errors.Is(err, keyring.ErrNone) {
		return usage("%w", err)
	}
	for _, k := range gen.Keys {
		v.Keys = append(v.Keys, fingerprint(k))
		v.Mine = v.Mine || slices.ContainsFunc(mine, func(m ledger.PublicKey) bool { return m.Alg == k.Alg && bytes.Equal(m.Public, k.Public) })
	}
	for rec, err := range lr.Records(0) {
		if err != nil {
			return environment(err)
		}
		if rec.Type == ledger.TypeErase {
			b, err := lr.Payload(rec)
			if err != nil {
				return environment(err)
			}
			n, err := ledger.ParseEraseNote(b)
			if err != nil {
				return environment(err)
			}
			v.Reasons = append(v.Reasons, fmt.Sprintf("%s: %s and %s: %s", time.Unix(0, rec.Wall).UTC().Format(time.RFC3339), count(uint64(len(n.Epochs)), "epoch"), count(uint64(len(n.Events)), "record"), n.Reason))
		}
		if rec.Type < ledger.TypeUser {
			continue
		}
		switch err := readable(lr, rec); {
		case err == nil:
			v.Open++
		case errors.Is(err, ledger.ErrErased):
			v.Erased++
		case errors.Is(err, ledger.ErrNoKey):
			v.Closed++
		default:
			return environment(err)
		}
	}
	if asJSON {
		return printJSON(s, v)
	}
	whose := "another recorder's"
	if v.Mine {
		whose = "this machine's"
	}
	fmt.Fprintf(s.out, "log %s\n  begun under %s keys: %s\n  payloads: %d readable with the keys at hand, %d closed to them, %d erased\n",
		v.Log, whose, strings.Join(v.Keys, " "), v.Open, v.Closed, v.Erased)
	for _, e := range v.Reasons {
		fmt.Fprintf(s.out, "  erased %s\n", e)
	}
	return nil
}

// readable opens a payload and lets it go.
func readable(lr *ledger.Reader, rec *ledger.ReadRecord) error {
	if rec.Form.Batch() {
		_, err := lr.Events(rec)
		return err
	}
	return lr.PayloadTo(rec, io.Discard)
}

// What follows from a rotation, for whoever has to agree to it.
const (
	signingRotated = `This puts a new signing key in place of the one in %s. Whoever verifies with public keys that you gave away
(bodycam keys export; witnesses, logs and mirrors that know this recorder) takes what is recorded from now on for another
recorder's, until you give them the new ones. The former key is kept beside it: runs under it can be verified and extended.`
	identityRotated = `This puts a new reading key in place of the one in %s. A copy of identity.key that you keep elsewhere doesn't read
what is recorded from now on: keep one of the new file, which reads what was recorded before too. Machines that record for
this one with its former recipients.txt go on doing so.`
)

func keysRotate(s *streams) *cobra.Command {
	var f ringFlags
	var identity bool
	var sure consent
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Put new keys in place of the present ones",
		Long: `Make a new signing key; the former one is kept beside it, so that runs under it can still be verified and extended. The
machine's log of runs is handed over: both the old and the new keys sign that. With --identity, make a new reading key
instead: what is recorded from now on is encrypted to it, and what was recorded before can still be read.

A rotation can't be undone: on a terminal it says what follows from it and asks, elsewhere it needs --yes.` +
			exits("0  rotated", "2  there are no keys, their passphrase is missing, or it wasn't confirmed", "3  writing failed"),
		Example: "  bodycam keys rotate\n  bodycam keys rotate --identity --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.ring(); err != nil { // asks for the passphrase first
				return err
			}
			dir, err := f.directory()
			if err != nil {
				return err
			}
			phrase, err := f.newPhrase()
			if err != nil {
				return err
			}
			what := signingRotated
			if identity {
				what = identityRotated
			}
			if err := sure.confirm(s, "rotate", fmt.Sprintf(what, bodycam.Printable(dir))); err != nil {
				return err
			}
			if identity {
				if err := keyring.RotateIdentity(dir, phrase, f.ask, time.Now()); err != nil {
					return environment(err)
				}
				_, err = fmt.Fprintf(s.out, "%s: a new reading key was made. Keep a copy of %s elsewhere.\n", dir, keyring.IdentityFile)
				return err
			}
			if err := keyring.RotateSigning(dir, phrase, time.Now()); err != nil {
				return environment(err)
			}
			l, err := f.hostLog()
			if err != nil {
				return err
			}
			if err := l.HandOver(cmd.Context()); err != nil && !errors.Is(err, hostlog.ErrNone) {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "%s: a new signing key was made. Give those who verify %s again.\n", dir, keyring.PublicFile)
			return err
		},
	}
	cmd.Flags().BoolVar(&identity, "identity", false, "rotate the reading key instead")
	sure.add(cmd.Flags())
	f.add(cmd.Flags())
	return cmd
}

func keysExport(s *streams) *cobra.Command {
	var f ringFlags
	var out string
	var recipients, identity, remove bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the public keys for those who verify",
		Long: `Write the public signing keys, present and former: whoever has them can tell this machine's records from others'. With
--recipients, the public reading keys, for another machine that should record so that this one can read. With
--identity, the secret reading key, encrypted or not as it is kept; --remove then removes it here, so that what this
machine records can be read elsewhere only.` +
			exits("0  written", "2  there are no such keys", "3  writing failed"),
		Example: "  bodycam keys export -o recorder.pub\n  bodycam keys export --identity --remove -o /media/safe/identity.key",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := f.directory()
			if err != nil {
				return err
			}
			mode := fs.FileMode(0o644)
			var b []byte
			switch {
			case recipients && identity:
				return usage("--recipients and --identity exclude each other")
			case remove && (!identity || out == ""):
				return usage("--remove needs --identity and -o FILE")
			case recipients:
				b, err = os.ReadFile(filepath.Join(dir, keyring.RecipientsFile))
			case identity:
				mode = 0o600
				b, err = os.ReadFile(filepath.Join(dir, keyring.IdentityFile))
			default:
				b, err = publicText(dir)
			}
			if err != nil {
				return usage("%w", err)
			}
			if out == "" {
				_, err = s.out.Write(b)
				return err
			}
			if err := writeNewFile(out, b, mode); err != nil {
				return environment(err)
			}
			if remove {
				if err := os.Remove(filepath.Join(dir, keyring.IdentityFile)); err != nil {
					return environment(err)
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&out, "out", "o", "", "file to write; it must not exist (default: standard output)")
	fl.BoolVar(&recipients, "recipients", false, "the public reading keys")
	fl.BoolVar(&identity, "identity", false, "the secret reading key")
	fl.BoolVar(&remove, "remove", false, "with --identity: remove it here once it is written")
	f.add(fl)
	return cmd
}

func publicText(dir string) ([]byte, error) {
	keys, err := keyring.Trusted(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, k := range keys {
		fmt.Fprintf(&b, "%s\n", checkpoint.Key{Name: "bodycam", Alg: k.Alg, Public: k.Public})
	}
	return b.Bytes(), nil
}

// writeNewFile makes a file durably; it must not exist.
func writeNewFile(path string, b []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
