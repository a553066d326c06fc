// Package store keeps objects as files on one or several local folders.
//
//	server ──▶ Store ──HRW over mountpaths──▶ <mountpath>/
//	                                            .sheaf-mountpath          identity, lock
//	                                            .sheaf-layout             which mountpaths there are
//	                                            .sheaf-catalog/           names and tombstones in order
//	                                            .sheaf-clean              the catalog agrees with the files
//	                                            @sheaf/<bucket>/
//	  Put ─▶ work file ─▶ xxh3, attribute,        %wk/w1f                 work files
//	         fsync, rename, fsync of folder ─▶    %ob/train/0001.tar      objects under their own names
//	                                              %lg/3f/3f9a…            objects whose name has no path
//	                                              %ix/b2/b2c4…            one opaque index beside a shard
//	                                            %trash/                   buckets being destroyed
//
// # Names
//
// '/' separates folders. A component is stored as it is, except that '%' and NUL
// become "%25" and "%00", "." and ".." become "%2E" and "%2E%2E", and an empty
// component ("a//b", "a/") becomes a lone "%". A file whose name isn't the one
// that this encoding gives is foreign and doesn't exist for the store.
//
// Some names can't have a path of their own: a component is over 255 bytes, the
// path over 2 048, or it meets another object (object "a" while "a/b" makes "a" a
// folder, or the reverse). Those go to the hashed place, %lg, under the SHA-256 of
// the name, with the true name in the attribute. An object thus has several
// possible places, in a fixed order of preference: for each mountpath in HRW
// order, the plain place, then the hashed one. The first that exists is the
// object. HRW never changes the relative order of two mountpaths, so the rule
// stays right when folders are added or taken away. A write goes to the first
// possible place and then removes the others, a delete removes the least preferred
// first: a crash in the middle leaves what was there before or what was asked for,
// never an older version.
//
// # Catalog
//
// Each mountpath has a catalog of its files, in the order of names, which listings and
// look-ups read, and which keeps the tombstones. The files are right: a commit notes the
// object when its file is in place, and after anything but a clean close the catalog is
// checked against the files before the store opens. A delete is the other way round: the
// tombstone is durable before the file goes, and a file that a newer tombstone finds at
// the check is removed.
//
// # Versions
//
// Of two writes, or a write and a delete, the higher version stays, in whatever order
// they come. A delete is a tombstone, on disk before the file is removed. Stage brings the
// bytes to disk and Commit gives them a name and a version, so that a write on several
// nodes can settle its version in between.
//
// # Mountpaths
//
// A device's error disables a mountpath. Its names are then Unavailable, unless a newer
// version is written to the next mountpath in HRW order; as long as every object lies on
// the first of the mountpaths in use when it was written, a name can only be lost on one
// that comes before all in use, and any other is NotFound. When a mountpath comes into use
// the objects are scattered: searches look everywhere and the highest version counts, until
// Resilver has moved everything to where it belongs. Each mountpath keeps a copy of the
// layout, so that a start knows of a disk that is gone and of objects that are scattered.
//
// # Invariants
//
//   - What Put acknowledged is on disk, unless it was relaxed: data, attribute, name, and every
//     folder above.
//     A folder that others can see is durable; it is made and synced under branch.tree.
//   - A failed Put leaves no file and leaves the older object as it was. After a
//     failed fsync nothing is tried again on that file.
//   - The version of an object grows with every write, also across a delete.
//   - An open Object is one whole version, whatever is written or deleted meanwhile.
//   - No object name leaves its bucket's folder.
//   - One process at a time uses a mountpath.
//
// Lock order: Store.resilvering, Store.admin, a stripe, bucket.life, branch.tree, Store.mu,
// Store.layoutMu. A stripe and
// bucket.life are held over the renames and syncs of a commit, which is what they are for;
// none is held while bytes come from a reader.
package store
