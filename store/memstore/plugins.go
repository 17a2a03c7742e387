package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

type plugin struct {
	store.Plugin // ActiveN and Versions are filled in by view
	lastN        int
	versions     []*version // by rising number
}

type version struct {
	store.Version
	module []byte
}

func (p *plugin) view() store.Plugin {
	v := p.Plugin
	v.Versions = len(p.versions)
	if active := p.byDigest(p.Active); active != nil {
		v.ActiveN = active.N
	}
	return v
}

func (p *plugin) find(match func(*version) bool) *version {
	if i := slices.IndexFunc(p.versions, match); i >= 0 {
		return p.versions[i]
	}
	return nil
}

func (p *plugin) byDigest(d carrel.Digest) *version {
	return p.find(func(v *version) bool { return v.Digest == d })
}

func (v *version) view() store.Version {
	out := v.Version
	out.Manifest = slices.Clone(out.Manifest)
	out.Report = slices.Clone(out.Report)
	return out
}

// plugin returns nil if there is no such plugin in this tenant.
func (s *Store) plugin(t carrel.TenantID, p carrel.PluginName) *plugin {
	if tn := s.tenants[t]; tn != nil {
		return tn.plugins[p]
	}
	return nil
}

// PutVersion implements store.Plugins.
func (s *Store) PutVersion(ctx context.Context, v store.Version, module []byte, most store.PluginLimits) (store.Version, bool, error) {
	const op = "memstore.PutVersion"
	if err := s.begin(ctx); err != nil {
		return store.Version{}, false, err
	}
	defer s.mu.Unlock()
	tn := s.tenants[v.Tenant]
	if tn == nil {
		return store.Version{}, false, carrel.FailNotFound(op)
	}
	p := tn.plugins[v.Plugin]
	if p == nil {
		if len(tn.plugins) >= most.Plugins {
			return store.Version{}, false, carrel.FailLimit(op, abi.QuotaExceeded, "plugins",
				fmt.Sprintf("this tenant has its %d plugins; delete one, or let the operator raise the limit", most.Plugins))
		}
		p = &plugin{Plugin: store.Plugin{Tenant: v.Tenant, Name: v.Plugin, CreatedAt: stored(v.CreatedAt)}}
	} else if old := p.byDigest(v.Digest); old != nil {
		return old.view(), false, nil
	}
	if len(p.versions) >= most.Versions {
		return store.Version{}, false, carrel.FailLimit(op, abi.QuotaExceeded, "versions",
			fmt.Sprintf("this plugin has its %d versions; delete one, or let the operator raise the limit", most.Versions))
	}
	p.lastN++
	v.N = p.lastN
	v.Bytes = int64(len(module))
	v.CreatedAt = stored(v.CreatedAt)
	kept := &version{Version: v, module: slices.Clone(module)}
	kept.Version = kept.view()
	p.versions = append(p.versions, kept)
	tn.plugins[v.Plugin] = p
	return kept.view(), true, nil
}

// Version implements store.Plugins.
func (s *Store) Version(ctx context.Context, t carrel.TenantID, name carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	if err := s.begin(ctx); err != nil {
		return store.Version{}, err
	}
	defer s.mu.Unlock()
	var v *version
	if p := s.plugin(t, name); p != nil {
		switch {
		case ref.IsActive():
			v = p.byDigest(p.Active)
		case ref.Digest != carrel.Digest{}:
			v = p.byDigest(ref.Digest)
		default:
			v = p.find(func(v *version) bool { return v.N == ref.N })
		}
	}
	if v == nil {
		return store.Version{}, carrel.FailNotFound("memstore.Version")
	}
	return v.view(), nil
}

// FindVersion implements store.Plugins.
func (s *Store) FindVersion(ctx context.Context, t carrel.TenantID, d carrel.Digest) (store.Version, error) {
	if err := s.begin(ctx); err != nil {
		return store.Version{}, err
	}
	defer s.mu.Unlock()
	if tn := s.tenants[t]; tn != nil {
		for _, p := range tn.plugins {
			if v := p.byDigest(d); v != nil {
				found := v.Version
				found.Manifest, found.Report = nil, nil
				return found, nil
			}
		}
	}
	return store.Version{}, carrel.FailNotFound("memstore.FindVersion")
}

// ListVersions implements store.Plugins.
func (s *Store) ListVersions(ctx context.Context, t carrel.TenantID, name carrel.PluginName, before, limit int) ([]store.Version, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil {
		return nil, carrel.FailNotFound("memstore.ListVersions")
	}
	var list []store.Version
	for _, v := range slices.Backward(p.versions) {
		if len(list) >= limit {
			break
		}
		if before == 0 || v.N < before {
			listed := v.Version
			listed.Manifest, listed.Report = nil, nil
			list = append(list, listed)
		}
	}
	return list, nil
}

// Module implements store.Plugins.
func (s *Store) Module(ctx context.Context, t carrel.TenantID, name carrel.PluginName, d carrel.Digest) ([]byte, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if p := s.plugin(t, name); p != nil {
		if v := p.byDigest(d); v != nil {
			return slices.Clone(v.module), nil
		}
	}
	return nil, carrel.FailNotFound("memstore.Module")
}

// Plugin implements store.Plugins.
func (s *Store) Plugin(ctx context.Context, t carrel.TenantID, name carrel.PluginName) (store.Plugin, error) {
	if err := s.begin(ctx); err != nil {
		return store.Plugin{}, err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil {
		return store.Plugin{}, carrel.FailNotFound("memstore.Plugin")
	}
	return p.view(), nil
}

// ListPlugins implements store.Plugins.
func (s *Store) ListPlugins(ctx context.Context, t carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	tn := s.tenants[t]
	if tn == nil {
		return nil, nil
	}
	var list []store.Plugin
	for _, name := range sortedAfter(tn.plugins, after, limit) {
		list = append(list, tn.plugins[name].view())
	}
	return list, nil
}

// Activate implements store.Plugins.
func (s *Store) Activate(ctx context.Context, t carrel.TenantID, name carrel.PluginName, d carrel.Digest, open store.ScopeInstance) (store.Plugin, error) {
	const op = "memstore.Activate"
	if err := s.begin(ctx); err != nil {
		return store.Plugin{}, err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil || p.byDigest(d) == nil {
		return store.Plugin{}, carrel.FailNotFound(op)
	}
	if p.Scope == "" {
		if err := s.openApplication(op, p, open); err != nil {
			return store.Plugin{}, err
		}
	}
	if p.Active != d && p.Active != (carrel.Digest{}) {
		p.Previous = p.Active
	}
	p.Active = d
	return p.view(), nil
}

// Deactivate implements store.Plugins.
func (s *Store) Deactivate(ctx context.Context, t carrel.TenantID, name carrel.PluginName) (store.Plugin, error) {
	if err := s.begin(ctx); err != nil {
		return store.Plugin{}, err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil {
		return store.Plugin{}, carrel.FailNotFound("memstore.Deactivate")
	}
	before := p.view()
	if p.Active != (carrel.Digest{}) {
		p.Previous = p.Active
	}
	p.Active = carrel.Digest{}
	s.disown(p)
	return before, nil
}

// DeleteVersion implements store.Plugins.
func (s *Store) DeleteVersion(ctx context.Context, t carrel.TenantID, name carrel.PluginName, d carrel.Digest) error {
	const op = "memstore.DeleteVersion"
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil || p.byDigest(d) == nil {
		return carrel.FailNotFound(op)
	}
	if p.Active == d {
		return fmt.Errorf("%s: %w", op, store.ErrActive)
	}
	if p.Previous == d {
		p.Previous = carrel.Digest{}
	}
	p.versions = slices.DeleteFunc(p.versions, func(v *version) bool { return v.Digest == d })
	return nil
}

// DeletePlugin implements store.Plugins.
func (s *Store) DeletePlugin(ctx context.Context, t carrel.TenantID, name carrel.PluginName) (store.Plugin, error) {
	if err := s.begin(ctx); err != nil {
		return store.Plugin{}, err
	}
	defer s.mu.Unlock()
	p := s.plugin(t, name)
	if p == nil {
		return store.Plugin{}, carrel.FailNotFound("memstore.DeletePlugin")
	}
	before := p.view()
	s.disown(p)
	delete(s.tenants[t].plugins, name)
	delete(s.tenants[t].grants, name)
	return before, nil
}

// ActivePlugins implements store.Plugins.
func (s *Store) ActivePlugins(ctx context.Context, afterTenant carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []store.Plugin
	for id, tn := range s.tenants {
		for name, p := range tn.plugins {
			above := cmp.Or(cmp.Compare(id, afterTenant), cmp.Compare(name, after)) > 0
			if above && p.Active != (carrel.Digest{}) {
				list = append(list, p.view())
			}
		}
	}
	slices.SortFunc(list, func(a, b store.Plugin) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return head(list, limit), nil
}
