"""Apple's side of the border, read as data: what tests need that hold our code against Apple's API.

`clang`      compiles for macOS on any machine
`macho`      reads what it compiled, and what Apple's compiler did
`reference`  fetches the two wheels that describe Apple's API
`declared`   what our headers declare
`metal_cpp`  what Apple's C++ headers declare
`compare`    the differences, each as a sentence
"""
