// Package compose stands in for testcontainers' package of that name, which confluent-kafka-go's tests import. They do not call it
// where a cluster is there already, and it brings the whole of Docker along.
package compose

// LocalDockerCompose starts nothing.
type LocalDockerCompose struct{ Error error }

// NewLocalDockerCompose takes what the original takes.
func NewLocalDockerCompose([]string, string) *LocalDockerCompose { return &LocalDockerCompose{} }

// WithCommand returns its receiver.
func (c *LocalDockerCompose) WithCommand([]string) *LocalDockerCompose { return c }

// Invoke returns its receiver, which has no error.
func (c *LocalDockerCompose) Invoke() *LocalDockerCompose { return c }

// Down does nothing.
func (c *LocalDockerCompose) Down() *LocalDockerCompose { return c }
