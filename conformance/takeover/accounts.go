package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// accountsMax is how many accounts are changed by turns.
	accountsMax = 4
	// accountPause is that between two changes of users and roles.
	accountPause = 60 * time.Millisecond
)

// account is a user and a role of the same name, as far as changes of them were
// acknowledged.
type account struct {
	name string
	// step is the next change of it. One that is negative is a turn without any, so
	// that no two accounts are at the same step.
	step       int
	user, role bool
	// holds says that the user has the role.
	holds bool
	// permissions of the role, by their first key.
	permissions map[string]clientv3.PermissionType
	// unknown is set once a change has got no answer: it may be made at any later time.
	unknown bool
}

// accounts are all that a crowd has made.
type accounts struct {
	all []*account
	// acknowledged is how many changes were.
	acknowledged int
}

// administer adds and removes users and roles, and grants and revokes roles and
// permissions, all along. Authentication stays disabled: tokens would end with
// the members that gave them.
func (c *crowd) administer(ctx context.Context, own *clientv3.Client) {
	var current [accountsMax]*account
	for number := 0; ctx.Err() == nil; number++ {
		turn := number % accountsMax
		one := current[turn]
		if one == nil || one.unknown {
			one = &account{name: fmt.Sprintf("account-%d-%d", c.first, number), permissions: map[string]clientv3.PermissionType{}}
			if number < accountsMax {
				one.step = -2 * turn
			}
			current[turn] = one
			c.accounts.all = append(c.accounts.all, one)
		}
		if one.step < 0 {
			one.step++
		} else {
			call, cancel := context.WithTimeout(ctx, callMax)
			c.settle(one, one.change(call, own))
			cancel()
		}
		time.Sleep(accountPause)
	}
}

// settle notes how a change has ended.
func (c *crowd) settle(one *account, err error) {
	switch {
	case err == nil:
		c.accounts.acknowledged++
	case slices.ContainsFunc([]error{
		rpctypes.ErrUserAlreadyExist, rpctypes.ErrUserNotFound, rpctypes.ErrRoleAlreadyExist, rpctypes.ErrRoleNotFound,
		rpctypes.ErrRoleNotGranted, rpctypes.ErrPermissionNotGranted,
	}, func(refusal error) bool { return errors.Is(err, refusal) }):
		c.t.Errorf("%+v: what was acknowledged before is not there: %v", *one, err)
		one.unknown = true
	default:
		one.unknown = true
	}
}

// change makes the next change of an account.
func (a *account) change(ctx context.Context, own *clientv3.Client) (err error) {
	const cycle = 9
	grant := func(key, end string, kind clientv3.PermissionType) {
		if _, err = own.RoleGrantPermission(ctx, a.name, key, end, kind); err == nil {
			a.permissions[key] = kind
		}
	}
	switch a.step % cycle {
	case 0:
		// A password costs the member that is asked some milliseconds.
		options := &clientv3.UserAddOptions{NoPassword: a.step > 0}
		password := "word"
		if options.NoPassword {
			password = ""
		}
		if _, err = own.UserAddWithOptions(ctx, a.name, password, options); err == nil {
			a.user = true
		}
	case 1:
		if _, err = own.RoleAdd(ctx, a.name); err == nil {
			a.role = true
		}
	case 2:
		grant("a", "b", clientv3.PermissionType(clientv3.PermReadWrite))
	case 3:
		if _, err = own.UserGrantRole(ctx, a.name, a.name); err == nil {
			a.holds = true
		}
	case 4:
		grant("c", "", clientv3.PermissionType(clientv3.PermRead))
	case 5:
		if _, err = own.RoleRevokePermission(ctx, a.name, "a", "b"); err == nil {
			delete(a.permissions, "a")
		}
	case 6:
		// Every second time the role is deleted while the user has it.
		if a.step/cycle%2 == 0 {
			if _, err = own.UserRevokeRole(ctx, a.name, a.name); err == nil {
				a.holds = false
			}
		} else {
			grant("c", "", clientv3.PermissionType(clientv3.PermWrite))
		}
	case 7:
		if _, err = own.RoleDelete(ctx, a.name); err == nil {
			a.role, a.holds = false, false
			clear(a.permissions)
		}
	case 8:
		if _, err = own.UserDelete(ctx, a.name); err == nil {
			a.user = false
		}
	}
	a.step++
	return err
}

// expected is what members say of an account of which all is known.
func (a *account) expected() string {
	if a.unknown {
		return ""
	}
	user, role := "no user", "no role"
	if a.user {
		user = "user []"
		if a.holds {
			user = "user [" + a.name + "]"
		}
	}
	if a.role {
		var held []string
		for key, kind := range a.permissions {
			held = append(held, fmt.Sprintf("%s %v", key, kind))
		}
		slices.Sort(held)
		role = fmt.Sprint("role ", held)
	}
	return user + ", " + role
}

// said is what a member says of an account.
func (a *account) said(ctx context.Context, own *clientv3.Client) (string, error) {
	user, role := "no user", "no role"
	found, err := own.UserGet(ctx, a.name)
	if err == nil {
		user = fmt.Sprint("user ", found.Roles)
	} else if !errors.Is(err, rpctypes.ErrUserNotFound) {
		return "", err
	}
	granted, err := own.RoleGet(ctx, a.name)
	if err == nil {
		var held []string
		for _, one := range granted.Perm {
			held = append(held, fmt.Sprintf("%s %v", one.Key, clientv3.PermissionType(one.PermType)))
		}
		slices.Sort(held)
		role = fmt.Sprint("role ", held)
	} else if !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return "", err
	}
	return user + ", " + role, nil
}

// judgeAccounts compares the users and roles of all members with what was
// acknowledged, and with each other where that is not known.
func (c *crowd) judgeAccounts() {
	c.t.Helper()
	if c.accounts.acknowledged == 0 {
		c.t.Error("no change of users and roles was acknowledged")
	}
	var differ []string
	// What had no answer may be made at any time, between two members too.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if differ = c.differingAccounts(); len(differ) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, one := range differ {
		c.t.Error(one)
	}
	unknown := 0
	for _, one := range c.accounts.all {
		if one.unknown {
			unknown++
		}
	}
	c.t.Logf("%d changes of users and roles acknowledged, %d of %d accounts had one without an answer", c.accounts.acknowledged, unknown, len(c.accounts.all))
}

// differingAccounts are those of which a member does not say what it must.
func (c *crowd) differingAccounts() (differ []string) {
	c.t.Helper()
	ctx := harness.Context(c.t)
	wanted := make([]string, len(c.accounts.all))
	for number, one := range c.accounts.all {
		wanted[number] = one.expected()
	}
	var lists string
	for _, member := range c.stage.members() {
		own := c.stage.direct(member)
		defer own.Close()
		users, err := own.UserList(ctx)
		if err != nil {
			return append(differ, err.Error())
		}
		roles, err := own.RoleList(ctx)
		if err != nil {
			return append(differ, err.Error())
		}
		slices.Sort(users.Users)
		slices.Sort(roles.Roles)
		list := fmt.Sprint("users ", users.Users, ", roles ", roles.Roles)
		if lists == "" {
			lists = list
		}
		if list != lists {
			differ = append(differ, fmt.Sprintf("%s has %s, another member %s", member.Name, list, lists))
		}
		for number, one := range c.accounts.all {
			said, err := one.said(ctx, own)
			if err != nil {
				return append(differ, err.Error())
			}
			if wanted[number] == "" {
				wanted[number] = said
			}
			if said != wanted[number] || strings.Contains(said, "no user") == slices.Contains(users.Users, one.name) {
				differ = append(differ, fmt.Sprintf("%s of %s is %s, not %s", one.name, member.Name, said, wanted[number]))
			}
		}
	}
	return differ
}
