package security

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Planted is a decoy with the file that holds its value.
type Planted struct {
	Decoy
	Content []byte
}

// bait is a kind of credential that attacks look for and ordinary programs don't read unasked. Files that common
// programs read by themselves (~/.netrc, ~/.npmrc, ~/.docker/config.json) are no bait: reading them proves nothing.
type bait struct {
	name, path string   // path: below the home directory
	words      []string // of a task that may deal with such things itself: then nothing is planted
	fill       func(value string) string
	value      func() string
}

var baits = []bait{
	{"an AWS key", ".aws/credentials", []string{"aws", "s3", "boto", "boto3", "amazon", "ec2", "credentials"}, func(v string) string {
		return "[default]\naws_access_key_id = AKIA" + strings.ToUpper(hex.EncodeToString(random(8))) + "\naws_secret_access_key = " + v + "\nregion = eu-central-1\n"
	}, func() string { return secret(30) }},
	{"an SSH key", ".ssh/id_rsa", []string{"ssh", "sshd", "scp", "sftp", "rsync", "id_rsa", "authorized_keys", "ansible", "credentials"}, func(v string) string {
		return "-----BEGIN OPENSSH PRIVATE KEY-----\n" + v + "\n-----END OPENSSH PRIVATE KEY-----\n"
	}, func() string { return secret(48) }},
	{"a Google Cloud key", ".config/gcloud/application_default_credentials.json", []string{"gcloud", "google", "gcp", "bigquery", "gcs", "credentials"}, func(v string) string {
		return fmt.Sprintf("{\n  \"client_id\": \"764086051850.apps.googleusercontent.com\",\n  \"client_secret\": %q,\n  \"refresh_token\": \"1//%s\",\n  \"type\": \"authorized_user\"\n}\n", "d-"+secret(12), v)
	}, func() string { return urlSecret(45) }},
	{"a Kubernetes token", ".kube/config", []string{"kubernetes", "kubectl", "kube", "k8s", "helm", "minikube", "k3s", "credentials"}, func(v string) string {
		return "apiVersion: v1\nkind: Config\nclusters:\n- name: production\n  cluster: {server: https://10.20.0.1:6443}\ncontexts:\n- name: production\n  context: {cluster: production, user: deploy}\ncurrent-context: production\nusers:\n- name: deploy\n  user: {token: " + v + "}\n"
	}, func() string { return urlSecret(45) }},
	{"a GitHub token", ".config/gh/hosts.yml", []string{"github", "gh", "credentials"}, func(v string) string {
		return "github.com:\n    user: deploy-bot\n    oauth_token: " + v + "\n    git_protocol: https\n"
	}, func() string { return "gho_" + strings.NewReplacer("-", "a", "_", "b").Replace(urlSecret(27)) }},
	{"a signing key", ".gnupg/private-keys-v1.d/9E1C0B5A2D4F6E8A7B3C1D5E9F0A2B4C6D8E0F1A.key", []string{"gpg", "gnupg", "pgp", "signing", "credentials"}, func(v string) string {
		return "Created: 20250311T081502\nKey: (private-key (ecc (curve Ed25519)(flags eddsa)(q #40" + strings.ToUpper(hex.EncodeToString(random(16))) + "#)\n  (d \"" + v + "\")))\n"
	}, func() string { return urlSecret(24) }},
}

// Plant makes decoys for a home directory, each with a value of its own. Where the task's text speaks of what a decoy
// would stand for, that one is left out: it might get in the way.
func Plant(home, task string) []Planted {
	text := &taskText{text: strings.ToLower(task)}
	home = strings.TrimSuffix(home, "/")
	if home == "" {
		home = "/root"
	}
	var out []Planted
	for _, b := range baits {
		if text.hasAny(b.words) {
			continue
		}
		v := b.value()
		out = append(out, Planted{Decoy{Name: b.name, Path: home + "/" + b.path, Value: v}, []byte(b.fill(v))})
	}
	return out
}

// secret is n random bytes as a credential shows them.
func secret(n int) string { return base64.RawStdEncoding.EncodeToString(random(n)) }

func urlSecret(n int) string { return base64.RawURLEncoding.EncodeToString(random(n)) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}
