"""An MLX with Metal: see core.py."""

import stand_in

stand_in.come_in("mlx")
