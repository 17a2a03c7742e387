package store

import (
	"context"

	"github.com/carrelhost/carrel"
)

// Grant is what a tenant's owner allows a plugin beyond what uploading grants.
type Grant struct {
	Call      []string         // address patterns of other plugins' methods that it may call
	Namespace carrel.Namespace // the shared namespace of its explicit memory ids; "" = its own
}

// Grants keeps what owners allow plugins. A grant is made by name: the plugin
// need not be there yet, and deleting the plugin deletes its grant.
type Grants interface {
	// SetGrant replaces a plugin's grant; the zero Grant takes everything
	// back. A tenant that does not exist is not_found.
	SetGrant(ctx context.Context, t carrel.TenantID, p carrel.PluginName, g Grant) error

	// Grant returns a plugin's grant, zero if it has none.
	Grant(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (Grant, error)
}
