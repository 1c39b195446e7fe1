"""What CUDA does where the meta device does something else: one table per kind of correction.

A rule is a function under a decorator of `registry`, in the file named after its subject. Importing this
package registers them all.
"""
