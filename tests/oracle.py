"""Lagrange's equations from energies alone, everything else by nested autodiff.

Independent of the package below the model language: homogeneous matrices, one joint and one body
at a time. For trees whose joints have scalar coordinates, given as `{joint: coordinates}`.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxmbd import forces, joints


def motion(R, p):
    return jnp.block([[R, p[:, None]], [jnp.zeros((1, 3)), jnp.ones((1, 1))]])


def turn(n, angle):
    K = jnp.cross(n[None], jnp.eye(3)).T  # K x = n × x
    s, c = jnp.sin(angle), jnp.cos(angle)
    return motion(c * jnp.eye(3) + s * K + (1 - c) * jnp.outer(n, n), jnp.zeros(3))


def slide(n, length):
    return motion(jnp.eye(3), length * n)


def placement(frame):
    w, x, y, z = frame.quat / jnp.linalg.norm(frame.quat)
    columns = [
        [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)],
        [2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)],
        [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)],
    ]
    return motion(jnp.array(columns).T, frame.p)


def passage(joint, q):
    """From the frame on the predecessor to the frame on the successor."""
    match joint:
        case joints.Fixed():
            return jnp.eye(4)
        case joints.Revolute():
            return turn(joint.axis, q[0])
        case joints.Prismatic():
            return slide(joint.axis, q[0])
        case joints.Cylindrical():
            return slide(joint.axis, q[0]) @ turn(joint.axis, q[1])
        case joints.Universal():
            return turn(joint.axis1, q[0]) @ turn(joint.axis2, q[1])
        case joints.Planar():
            x, y = joint.basis()[:, 0], joint.basis()[:, 1]
            return slide(x, q[0]) @ slide(y, q[1]) @ turn(joint.axis, q[2])
    raise TypeError(joint)


def poses(model, q):
    """Poses of the ground and every body, found joint by joint."""
    X = {"ground": jnp.eye(4)}
    while len(X) <= len(model.bodies):
        for name, joint in model.joints.items():
            first, second = joint.predecessor, joint.successor
            across = placement(first) @ passage(joint, q[name]) @ jnp.linalg.inv(placement(second))
            if first.body in X and second.body not in X:
                X[second.body] = X[first.body] @ across
            elif second.body in X and first.body not in X:
                X[first.body] = X[second.body] @ jnp.linalg.inv(across)
    return X


def place(X, frame):
    return X[frame.body] @ placement(frame)


def kinetic(model, X, X_dot, v):
    total = 0.0
    for name, body in model.bodies.items():
        velocity = X_dot[name] @ jnp.append(body.com, 1.0)
        W = X[name][:3, :3].T @ X_dot[name][:3, :3]
        omega = jnp.array([W[2, 1], W[0, 2], W[1, 0]])
        total += 0.5 * body.mass * velocity @ velocity + 0.5 * omega @ body.inertia @ omega
    for rotor in model.rotors.values():
        spin = rotor.gear_ratio * v[rotor.joint.name]
        total += 0.5 * rotor.inertia * jnp.sum(spin**2)
    return total


def potential(model, t, X, q):
    total = 0.0
    for force in model.forces.values():
        match force:
            case forces.Gravity():
                for name, body in model.bodies.items():
                    total -= body.mass * force.g @ (X[name] @ jnp.append(body.com, 1.0))[:3]
            case forces.SpringDamper():
                line = (place(X, force.frame_b) - place(X, force.frame_a))[:3, 3]
                total += 0.5 * force.stiffness * (jnp.linalg.norm(line) - force.rest_length) ** 2
            case forces.TorsionalSpringDamper():
                total += 0.5 * jnp.sum(force.stiffness * (q[force.joint.name] - force.rest) ** 2)
            case forces.JointTorque():
                total -= jnp.sum(force.signal(t) * q[force.joint.name])
    return total


def dissipation(model, X, X_dot, v):
    """Rayleigh's function: minus its slope along the velocities is the force."""
    total = 0.0
    for force in model.forces.values():
        match force:
            case forces.SpringDamper():
                line = (place(X, force.frame_b) - place(X, force.frame_a))[:3, 3]
                rate = (place(X_dot, force.frame_b) - place(X_dot, force.frame_a))[:3, 3]
                total += 0.5 * force.damping * (line @ rate) ** 2 / (line @ line)
            case forces.TorsionalSpringDamper():
                total += 0.5 * jnp.sum(force.damping * v[force.joint.name] ** 2)
            case forces.ViscousFriction():
                total += 0.5 * jnp.sum(force.coefficient * v[force.joint.name] ** 2)
            case forces.CoulombFriction():
                v_t = force.transition_velocity
                logarithms = jnp.log(jnp.cosh(v[force.joint.name] / v_t))
                total += jnp.sum(force.torque * v_t * logarithms)
    return total


def power(model, t, X, X_dot):
    """Power of applied forces and torques: its slope along the velocities is the force."""
    total = 0.0
    for force in model.forces.values():
        if not isinstance(force, forces.AppliedForce | forces.AppliedTorque):
            continue
        R, V = place(X, force.frame)[:3, :3], place(X_dot, force.frame)
        W = V[:3, :3] @ R.T
        omega = jnp.array([W[2, 1], W[0, 2], W[1, 0]])
        load = R @ force.signal(t) if force.follower else force.signal(t)
        total += load @ (V[:3, 3] if isinstance(force, forces.AppliedForce) else omega)
    return total


def accelerations(model, t, q, v):
    """v̇ of d/dt ∂T/∂v - ∂T/∂q + ∂V/∂q + ∂D/∂v = ∂P/∂v, as `{joint: values}`."""
    flat, unravel = ravel_pytree(q)

    def at(flat, speeds):
        X, X_dot = jax.jvp(lambda x: poses(model, unravel(x)), (flat,), (speeds,))
        return X, X_dot, unravel(flat), unravel(speeds)

    def lagrangian(flat, speeds):
        X, X_dot, q, v = at(flat, speeds)
        return kinetic(model, X, X_dot, v) - potential(model, t, X, q)

    def pull(speeds):
        X, X_dot, _, v = at(flat, speeds)
        return power(model, t, X, X_dot) - dissipation(model, X, X_dot, v)

    speeds = ravel_pytree(v)[0]
    momentum = jax.grad(lagrangian, argnums=1)
    mass = jax.jacfwd(momentum, argnums=1)(flat, speeds)
    _, carried = jax.jvp(lambda x: momentum(x, speeds), (flat,), (speeds,))
    force = jax.grad(lagrangian)(flat, speeds) - carried + jax.grad(pull)(speeds)
    return unravel(jnp.linalg.solve(mass, force))
