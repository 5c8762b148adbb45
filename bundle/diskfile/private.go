package diskfile

import (
	"errors"
	"io/fs"
	"os"
)

// KeepPrivate takes away the permissions of the group and of other users on the folder dir and on those of names in it that
// exist: folders become 0700 and files 0600.
//
// A folder with the setgid bit (chmod g+s), as Kubernetes' fsGroup sets it, is for a group on purpose: there the group
// keeps its permissions. A folder with the sticky bit, such as /tmp, is shared by all and stays as it is. Links
// are not followed. The error wraps fs.ErrPermission if dir belongs to another user; KeepPrivate then still changes all files and
// folders that it may.
func KeepPrivate(dir string, names ...string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	others := fs.FileMode(0o077)
	if info.Mode()&fs.ModeSetgid != 0 {
		others = 0o007
	}
	if info.Mode()&fs.ModeSticky == 0 { // first, so that no other user can change its entries
		err = take(root, ".", others)
	}
	for _, name := range names {
		err = errors.Join(err, take(root, name, others))
	}
	return err
}

func take(root *os.Root, name string, rights fs.FileMode) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0 || info.Mode()&rights == 0:
		return nil
	}
	return root.Chmod(name, info.Mode()&^rights)
}
